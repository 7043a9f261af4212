"""What is measured once and kept, beside what `flashfs replay` and `flashfs sweep` measure: `python bench`."""
