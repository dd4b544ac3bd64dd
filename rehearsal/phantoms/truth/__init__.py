"""The truth files of a cohort: causes and true outcomes, and the best results that a method can reach."""
