// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// ErrWaiting is in the error of a [Part] that lacks something that only other programs can provide.
// Trying again makes no sense before something changes.
var ErrWaiting = reconciler.ErrWaiting

// Part keeps one part of the installation right, for daemons with a loop of their own;
// [Installer.Run] is such a loop. The parts of an installer may work concurrently, but not during
// an uninstall. The methods of one part may not be called concurrently.
type Part interface {
	// Name returns "binaries", "kubeconfig" or "config".
	Name() string
	// Directories returns the directories whose changes concern this part.
	Directories() []string
	// Concerns reports whether a change of the file at path may concern this part.
	Concerns(path string) bool
	// Ensure compares and, where something differs, writes. After an error that wraps [ErrWaiting]
	// or [ErrSuperseded], call it again only when something has changed, or at the time that an
	// Again() time.Time method in the error's chain returns.
	Ensure(ctx context.Context) (Result, error)
}

// Result is what a part has done.
type Result int

// The results.
const (
	// Right means that nothing had to be done.
	Right Result = iota
	// Wrote means that something was written, for a reason of our own. Call Ensure again at once.
	Wrote
	// Restored means that something was written because another program or the operator had undone
	// it. Call Ensure again at once.
	Restored
	// Overtaken means that another program was writing at the same time. Call Ensure again at once.
	Overtaken
)

// String is one word.
func (r Result) String() string { return [...]string{"right", "wrote", "restored", "overtaken"}[r] }

// Parts returns the parts that keep the node right, in the order of their dependencies.
func (i *Installer) Parts() []Part {
	var parts []Part
	if i.options.SourceDir != "" {
		parts = append(parts, i.binaries())
	}
	if i.options.Kubeconfig != nil {
		parts = append(parts, i.kubeconfig())
	}
	return append(parts, i.config())
}
