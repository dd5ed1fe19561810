"""What a release is: the version in all files, the distributions, and what is checked of them."""
