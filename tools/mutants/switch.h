/* What chooses a mutant while the program runs, and hears which of them it came by. */
#ifndef FLASHFS_MUTANTS_H
#define FLASHFS_MUTANTS_H

#ifdef __cplusplus
extern "C" {
#endif
extern int flashfs_mutant_chosen;              /* its number; 0: none */
extern unsigned char* flashfs_mutants_reached; /* one byte a number */
#ifdef __cplusplus
}
#endif

static inline int flashfs_mutant(int number) {
  flashfs_mutants_reached[number] = 1;
  return number == flashfs_mutant_chosen;
}

#endif
