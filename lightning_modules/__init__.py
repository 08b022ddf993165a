"""Split networks, their defences, and the LightningModule that trains them."""
