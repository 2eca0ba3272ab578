"""What must a reader of the findings on translation know? Corpus and sizes are ours. (aitken2021 §4)"""

NOTE = (
    "English to French: sentences of Tatoeba stand in for ParaCrawl, of which the paper took over 30 million. They "
    "are shorter and simpler; the 150,000 to train on have 13,000 English and 22,000 French words. Sizes, optimiser "
    "and gold words for the decoder, in training and in measuring, are our choice."
)
