"""The parts of integrations that need their frameworks to be imported at all."""
