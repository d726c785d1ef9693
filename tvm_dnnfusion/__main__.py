"""``python -m tvm_dnnfusion``."""

import sys

from tvm_dnnfusion.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
