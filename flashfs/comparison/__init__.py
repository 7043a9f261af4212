"""The comparison that is kept: every FTL that flashfs brings, on the same workloads, on equal ground.

``works`` says what is played on which device, ``kept`` reads and writes what came out, ``beside`` plays the same on
another FTL, ``chart`` draws all of them. ``tools/comparison.py`` makes the kept results and docs/comparison.md anew,
`flashfs compare FTL` puts another FTL beside them.
"""
