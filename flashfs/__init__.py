"""flashfs: an SSD that you can mount. A NAND chip in a sparse file, a flash translation layer chosen by name."""

__version__ = "0.1.0"
