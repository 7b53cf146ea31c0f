#include "cli/cli.h"

int cmd_run(int argc, char **argv) {
    (void)argc;
    return cli_failf("%s is not there yet", argv[0]);
}
