"""The guest for JavaScript: a program for Node.js."""
