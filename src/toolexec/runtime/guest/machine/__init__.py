"""What runs in a virtual machine besides the guest: its first process, and a guest that waits for a restore."""
