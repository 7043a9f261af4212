# Compiled callers only: nandimg._faults.
