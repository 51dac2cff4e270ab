"""All layers except normalizations, losses and recurrent networks."""
