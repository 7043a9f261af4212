"""An image as a disk for NBD clients (QEMU, libguestfs, nbdcopy): nbdkit, with our plugin in it."""
