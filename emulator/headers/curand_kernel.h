#error "The emulator has no cuRAND. Random numbers come from the host."
