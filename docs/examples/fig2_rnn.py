"""Figure 2 of aitken2021 with a cell of our own, a vanilla RNN: h' = tanh(W x + U h + b)."""

from dataclasses import replace

from torch import nn

from attnscope.cli import main
from attnscope.models import CELLS
from attnscope.models.cells import Cell
from attnscope.studies import study
from attnscope.studies.aitken2021.experiments import AED
from attnscope.studies.aitken2021.fig2 import attending


class RNN(Cell):
    """Every cell takes these three arguments and defines `step`."""

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.rnn = nn.RNNCell(inputs, units)

    def step(self, inputs, state):
        h = self.rnn(inputs, state[0])  # batch x units
        return h, (h,)  # the output, and the state, a tuple


CELLS["rnn"] = RNN
finding = attending("fig2-rnn", "AED, RNN", replace(AED, cell="rnn"))
STUDY = replace(study("aitken2021"), name="fig2_rnn", findings=(finding,))

if __name__ == "__main__":
    main()  # the command line of attnscope, which now knows the cell
