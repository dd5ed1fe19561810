"""Programs that run inside of sandboxes and speak the guest protocol; the host only reads and ships their text."""
