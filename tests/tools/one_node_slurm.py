"""Runs a command beside a Slurm of one node, of its own: for tests of `./lab grade --slurm`.

    apt-get install slurm-wlm munge
    python tests/tools/one_node_slurm.py COMMAND ...

As root on Linux, without systemd: munged, slurmctld and slurmd run from a temporary folder, on
ports of their own, and end with the command. Slurm counts one GPU, for --sbatch-gpu, whether there
is one or not. ctest does not run it.
"""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


@contextlib.contextmanager
def one_node() -> Iterator[dict[str, str]]:
    """What a command needs in its environment to find the cluster."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, contextlib.ExitStack() as ending:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("spool", "state"):
            (folder / part).mkdir()
        munge = folder / "munge"
        munge.mkdir(0o700)
        key = munge / "key"
        key.touch(0o400)
        key.write_bytes(secrets.token_bytes(128))
        host = socket.gethostname().split(".")[0]
        conf = folder / "slurm.conf"
        conf.write_text(CONFIGURATION.format(host=host, ctld=free_port(), slurmd=free_port(),
                                             folder=folder, cores=os.cpu_count()))
        (folder / "gres.conf").write_text("AutoDetect=off\nName=gpu File=/dev/null\n")
        environment = {"SLURM_CONF": str(conf)}

        def start(*argv: object) -> None:
            log = ending.enter_context((folder / f"{Path(str(argv[0])).name}.out").open("w"))
            process = subprocess.Popen([str(word) for word in argv], stdout=log,
                                       stderr=subprocess.STDOUT, env=os.environ | environment)
            ending.callback(process.wait)
            ending.callback(process.terminate)

        # Its socket lies where every user may look, its key does not.
        start("munged", "--foreground", "--force", f"--key-file={key}",
              f"--socket={folder}/munge.socket", f"--pid-file={munge}/pid",
              f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        start("slurmctld", "-D", "-f", conf)
        start("slurmd", "-D", "-f", conf)
        for _ in range(60):
            seen = subprocess.run(["sinfo", "--noheader", "--format=%t"], capture_output=True,
                                  text=True, env=os.environ | environment)
            if seen.stdout.strip() == "idle":
                break
            time.sleep(0.5)
        else:
            logs = "".join(file.read_text(errors="replace")[-2000:]
                           for file in folder.glob("*.[lo][ou][gt]"))
            raise SystemExit(f"the node does not come up: {seen.stdout}{seen.stderr}\n{logs}")
        yield environment


if __name__ == "__main__":
    with one_node() as variables:
        sys.exit(subprocess.run(sys.argv[1:], env=os.environ | variables).returncode)
