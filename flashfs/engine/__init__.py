"""What any device needs, whatever its FTL: contract/ is what a scheme implements, device/ the paths of a request and what
they stand on, recovery/ what follows a crash, views/ what tools look at.
``flashfs._core`` is the door that schemes cimport."""
