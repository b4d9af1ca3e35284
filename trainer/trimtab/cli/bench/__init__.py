"""Commands of `trimtab bench`: what each measures, and how it is shown."""
