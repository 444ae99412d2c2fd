// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Options say how the sandbox is made. The zero value gives as much as the caller may have.
type Options struct {
	// SingleID maps the caller's own user and group only, even where subordinate ids exist. Root,
	// who needs no mapping, keeps all ids.
	SingleID bool
}

// Info is what [Enter] found.
type Info struct {
	// Inside is true in the process inside the sandbox, which goes on with its work. It is false in
	// a process that is done: the work has run inside, and all that is left is to exit with
	// ExitCode.
	Inside bool
	// ExitCode is how the process inside ended: its exit code, or 128 plus the signal that killed
	// it.
	ExitCode int
	// Root is true when the caller had the privileges already, so that no user namespace was made.
	Root bool
	// SingleID is true when only one user and group id exists inside: nobody there can play a
	// second user.
	SingleID bool
	// Reason says why there is a single id, and what to do about it. It is empty otherwise.
	Reason string
}

// Enter makes sure that the program goes on inside a sandbox, and belongs at the top of main.
// Outside it runs this program once more inside, with the same arguments, environment and standard
// files, and waits for its end; inside it returns at once. In a process started by one inside it
// returns at once, too: the sandbox is one for all of them.
//
// When ctx ends, the program inside gets SIGTERM, and SIGKILL ten seconds later; the error is then
// ctx's. A system that doesn't allow the sandbox is a [*ForbiddenError]; on other systems than
// Linux the error is errors.ErrUnsupported.
func Enter(ctx context.Context, o Options) (Info, error) {
	info, err := enter(ctx, o)
	if err != nil {
		return Info{}, fmt.Errorf("enter sandbox: %w", err)
	}
	return info, nil
}

// RunTests runs a package's tests inside a sandbox, and returns the exit code for os.Exit. It
// belongs into TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }
//
// Where the system doesn't allow a sandbox it says why on standard error and fails: tests that
// didn't run have not passed. On other systems than Linux, where there is nothing to enter, it runs
// the tests as they are.
func RunTests(m interface{ Run() int }) int {
	info, err := Enter(context.Background(), Options{})
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
