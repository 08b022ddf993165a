"""MixCon: Adjusting the Separability of Data Representations for Harder Data Recovery."""
