// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// ErrWaiting is in the error of a [Part] that lacks something only others can bring; there is no use in trying again before something changes.
var ErrWaiting = reconciler.ErrWaiting

// A Part keeps one thing on the node right, for daemons with a loop of their own; [Installer.Run] is one. The parts of an installer may
// work at the same time as each other, and not as an uninstall. The methods of one are not to be called at once.
type Part interface {
	// Name is "binaries", "kubeconfig" or "config".
	Name() string
	// Directories are those whose changes concern this part.
	Directories() []string
	// Concerns reports whether a change of the file at path, in one of the directories, may need this part.
	Concerns(path string) bool
	// Ensure compares and, where something differs, writes. An error that wraps [ErrWaiting] or [ErrSuperseded] asks to be called again only
	// when something has changed, or at the time that an Again() time.Time method in its chain says.
	Ensure(ctx context.Context) (Result, error)
}

// Result is what a part has done.
type Result int

// The results.
const (
	// Right means that there was nothing to do.
	Right Result = iota
	// Wrote means that something was written, for a reason of our own. The part is to look again at once.
	Wrote
	// Restored means that something was written because others had undone it. The part is to look again at once.
	Restored
	// Overtaken means that others were writing at the same time. The part is to look again at once.
	Overtaken
)

// String is one word.
func (r Result) String() string { return [...]string{"right", "wrote", "restored", "overtaken"}[r] }

// Parts are what keeps the node right, in the order in which they depend on each other.
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
