"""Attacks that were written without a look at the escape battery: what it promises must hold for them, too."""
