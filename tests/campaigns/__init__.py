"""Campaigns of kills, faults and odd inputs: minutes each, seeded, and each prints how many it tried and were fine."""
