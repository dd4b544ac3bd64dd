"""Analyses of masks: by case, detection of tumours and lesions, properties of the cases."""
