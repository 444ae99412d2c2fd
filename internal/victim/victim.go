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

// Task is what [Start] was told that this process is for; false in a process that it has not
// started.
func Task() (string, bool) { return os.LookupEnv(variable) }

// Ending is how a victim ends. The zero value lets it work to its end.
type Ending struct {
	// When has it killed (SIGKILL) as soon as that returns, which is called with the word to go on;
	// nil stands for not at all.
	When func()
	// Group has the processes that it started killed with it. Otherwise these go on by themselves.
	Group bool
}

// End is how a victim ended.
type End struct {
	// Killed says that it was killed before it was done.
	Killed bool
	// Took is the time from the word to go on to its end.
	Took time.Duration
}

// After has a victim killed so long from the word to go on.
func After(d time.Duration) func() { return func() { <-time.After(d) } }

// arguments are those that run one test, with the flags that are the program's own as they are
// here.
func arguments(test string) []string {
	all := []string{"-test.run=" + pattern(test), "-test.count=1"}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			all = append(all, "-"+f.Name+"="+f.Value.String())
		}
	})
	return all
}

// pattern is the argument of -test.run that selects a test by its name, subtests included.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}
