"""Nine small services with states of their own, which the tasks of the replay are done with."""
