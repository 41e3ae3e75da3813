"""Bottlenecks: what holds an accelerator back. Experimental.

:mod:`.signals` makes a few numbers of what was collected about a device, its host and the program. :mod:`.rules` is a
table of conditions on them. :class:`.judge.Judge` keeps them for a minute and gives a verdict.
"""
