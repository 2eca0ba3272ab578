"""What must a reader of the real-text tables know? Our choices, and where our runs differ. (snell2021 A.5, A.7, A.8)"""

CHOICES = (
    "α is that of the checkpoint with the best validation accuracy. (α, β^uf) is taken at the checkpoint where it is "
    "highest, on that split and in that measure, as published (A.7), and so are the other pairs with β^uf, of which "
    "the paper does not say it. Rows that say so give the last checkpoint.",
    "Rows with 'author's code' take every pair at the checkpoint where that pair is highest, with β^px and β^log in "
    "the first place, (β^px, β^uf), and for (α, β) the β of another seed. This is what the published numbers are by "
    "the author's code, so they stand beside these rows, too.",
    "ξ is read off the learning curve of the next seed for each seed (the author averages five for classification), "
    "at exactly the checkpoints of A.8; ξ* is where that curve ends. An asterisk counts the seeds where no checkpoint "
    "agreed more, so that ξ = ξ*.",
    "β is compared by its log-odds γ, which do not tie. Â is the share of positions that are in the top of the second "
    "score, in closed form. Start and end tokens count as positions and as output words.",
    "Δ is gradient · embedding, positive where a word raises the probability of the gold output. In the author's "
    "classification code its sign is the other one, so that is given too: (−Δ, β^uf).",
)
DATA = (
    "Published numbers are of the paper's corpora, which are not all at hand: AG News here has 10,000 of 60,000 "
    "training texts, Amazon about 7,400 of 40,000 reviews, IWSLT'14 4,600 of 160,240 training pairs; Yelp is the "
    "human-attention set, 1,545 reviews in place of 88,821. 20 Newsgroups is without headers, which give the class "
    "away, and cut at 1,000 words. Tatoeba stands in for News Commentary; it is trained for one epoch, its "
    "proxy for no more than 40,000 steps.",
    "Multi30k is in the tables twice: from English to German, as the paper says, and the other way round, as the "
    "author's code reads it; the published numbers stand beside both. German to English was added after a first run "
    "from English to German had ended 4 points of BLEU below the paper.",
    "Agreement is measured on at most 4,000 texts or 1,014 pairs of either split, drawn once for all seeds: all of the "
    "validation split, but for Tatoeba and IWSLT'14.",
    "Word vectors start at random. A.8 says GloVe, but the author's code makes the embedding anew after filling it.",
    "The profile 'quick' is smaller than the paper in every respect: fewer corpora, texts cut at 150 words, networks "
    "of 64 or 128 units, 1,000 or 1,500 steps, 4,000 subwords, 500 texts or 200 pairs to measure on.",
    "A corpus of your own, such as News Commentary, is a file of JSON lines with the fields source and target: "
    "attnscope.tasks.CORPORA['news_it_pt'] = Translation('news/it-pt.jsonl', skip_numeric=True, "
    "vocabulary=Subwords()), and its name among `translation` of a profile's text sizes. The published numbers then "
    "stand beside news_it_pt, news_en_nl and news_en_pt.",
)
ELSEWHERE = ("On corpora and sizes, and on corpora of your own, see the notes of table5.",)
LIMIT = (
    "What this does not show: that attention is attracted by knowledge of single words. What agrees above chance may "
    "have a common cause; and the best of some twenty checkpoints is chosen on the sentences that it is reported on."
)
