"""The published comparison: every FTL that comes with flashfs, on the same workloads and with equal settings.

``works`` defines the workloads and their devices, ``kept`` reads and writes the stored results, ``beside`` runs
another FTL on the same work, ``chart`` draws the results. ``tools/comparison.py`` regenerates the stored results and
docs/comparison.md; `flashfs compare FTL` puts another FTL beside them.
"""
