// SPDX-License-Identifier: Apache-2.0

package victim

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"time"
)

// variable carries the task to the copy.
const variable = "MESHCNI_VICTIM"

// Task returns the task that [Start] gave this process; false if Start did not start it.
func Task() (string, bool) { return os.LookupEnv(variable) }

// Ending describes how to end a victim. The zero value lets it finish its work.
type Ending struct {
	// When is called with the command to go on; when it returns, the process is killed (SIGKILL).
	// Nil means that it is not killed.
	When func()
	// Group kills its child processes too. Otherwise they go on.
	Group bool
	// Itself means that the process may kill itself, which is no failure.
	Itself bool
}

// End describes how a victim ended.
type End struct {
	// Killed reports whether it was killed before it was done.
	Killed bool
	// Took is the time from the command to go on to its end.
	Took time.Duration
}

// After returns a function for Ending.When that kills a victim after the given time.
func After(d time.Duration) func() { return func() { <-time.After(d) } }

// arguments returns the arguments that run one test, with this program's own flags.
func arguments(test string) []string {
	all := []string{"-test.run=" + pattern(test), "-test.count=1"}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			all = append(all, "-"+f.Name+"="+f.Value.String())
		}
	})
	return all
}

// pattern returns the argument of -test.run that selects a test by its name, subtests included.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}
