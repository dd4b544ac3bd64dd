"""One PET/CT patient to a mask, a risk or an HPV status: read, localise, segment, measure, head, write."""
