// SPDX-License-Identifier: Apache-2.0

package exhaustion

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"unsafe"
)

// TestOneAnswer runs out of threads after the answer, as it may while the plugin reports to the
// agent: the process ends as its answer says, and says nothing more.
func TestOneAnswer(t *testing.T) {
	t.Parallel()
	if code, err := strconv.Atoi(os.Getenv("TEST_ANSWERED")); err == nil {
		Answered(code)
		said := []byte(exhausted + " (have 5 already; errno=11)\n")
		answerExhaustion(uintptr(syscall.Stderr), unsafe.Pointer(&said[0]), int32(len(said)))
		t.Fatal("the process goes on")
	}
	for code := range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOneAnswer$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("TEST_ANSWERED=%d", code))
		output, err := cmd.Output()
		if got := cmd.ProcessState.ExitCode(); got != code || len(output) > 0 {
			t.Errorf("exit code %d, want %d, %v, and %q on standard output", got, code, err, output)
		}
	}
}
