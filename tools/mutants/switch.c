/* The switch itself, a library that all modules with mutants are linked to. Processes that are started anew take the
   chosen number, and the file in which they note what they reach, from the environment. */
#include "switch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int flashfs_mutant_chosen;
unsigned char* flashfs_mutants_reached;

__attribute__((constructor)) static void flashfs_mutants_open(void) {
  const char* chosen = getenv("FLASHFS_MUTANT");
  const char* path = getenv("FLASHFS_MUTANTS_REACHED");
  int fd = -1;
  if (chosen) flashfs_mutant_chosen = atoi(chosen);
  if (path) {
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, FLASHFS_MUTANTS_MOST)) {
      perror(path);
      abort();
    }
  }
  flashfs_mutants_reached = (unsigned char*)mmap(
      0, FLASHFS_MUTANTS_MOST, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (flashfs_mutants_reached == MAP_FAILED) abort();
  if (fd >= 0) close(fd);
}
