"""What any device needs, whatever its FTL: contract/ is what a scheme implements, blocks/ what both sides know of
blocks, device/ the paths of a request, recovery/ what follows a crash, views/ what tools look at. ``flashfs._core`` is
the door that schemes cimport."""
