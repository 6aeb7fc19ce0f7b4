"""The tables of the paper as commands: what is published, how to run it at several scales, and which claims hold."""
