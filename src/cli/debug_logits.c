#include "cli/cli.h"

int debug_logits(int argc, char **argv) {
    (void)argc;
    return cli_failf("%s is not there yet", argv[0]);
}
