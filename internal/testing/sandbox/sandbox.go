// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Info is the result of [Enter].
type Info struct {
	// Inside reports whether this is the process inside the sandbox, which goes on with its work.
	// If it is false, the work has run inside, and this process should exit with ExitCode.
	Inside bool
	// ExitCode is the exit code of the process inside, or 128 plus the signal that killed it.
	ExitCode int
	// Root reports whether the caller was privileged, so that no user namespace was needed.
	Root bool
	// SingleID reports whether only one user and group id exists inside, so that no process can
	// have a second user.
	SingleID bool
	// Reason is why there is a single id, and how to change that; else it is empty.
	Reason string
}

// Enter makes sure that the program continues inside a sandbox; call it at the top of main. Outside
// it runs this program once more inside, with the same arguments, environment and standard files,
// and waits for its end. Inside it returns at once, also in child processes: they share the
// sandbox.
//
// When ctx ends, the program inside gets SIGTERM, and SIGKILL ten seconds later; the error is then
// ctx's. If the system forbids the sandbox, the error is a [*ForbiddenError]; on systems other than
// Linux it is errors.ErrUnsupported.
func Enter(ctx context.Context) (Info, error) {
	info, err := enter(ctx)
	if err != nil {
		return Info{}, fmt.Errorf("enter sandbox: %w", err)
	}
	return info, nil
}

// RunTests runs a package's tests inside a sandbox, and returns the exit code for os.Exit. Call it
// from TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }
//
// If the system forbids a sandbox, it prints the reason to standard error and fails: tests that did
// not run have not passed. On systems other than Linux it runs the tests directly.
func RunTests(m interface{ Run() int }) int {
	info, err := Enter(context.Background())
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return m.Run()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	case !info.Inside:
		return info.ExitCode
	}
	return m.Run()
}
