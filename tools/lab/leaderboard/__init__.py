"""The leaderboard: boards, the measuring of a submission, receipts, and the pages made of them."""
