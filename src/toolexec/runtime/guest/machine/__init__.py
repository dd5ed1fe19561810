"""What runs in a virtual machine besides the guest itself: its first process, and the guest that waits for a restore."""
