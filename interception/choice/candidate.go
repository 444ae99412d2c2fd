// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"errors"
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// The names of the two dataplanes of this module, as package standard makes candidates of them.
const (
	NFTables = "nftables"
	IPTables = "iptables"
)

// Candidate is a dataplane that may be chosen.
type Candidate struct {
	// Name is what settings and logs call it.
	Name string
	// Dataplane is the dataplane.
	Dataplane interception.Dataplane
}

// Rejection says what a candidate lacks for a plan.
type Rejection struct {
	// Name is the candidate's.
	Name string
	// Missing are the errors that say so, one for each feature that was found missing. Each wraps [interception.ErrUnsupported].
	Missing []error
}

// String is the name and what is missing.
func (r Rejection) String() string {
	var texts []string
	for _, err := range r.Missing {
		texts = append(texts, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return fmt.Sprintf("%s: %s", r.Name, strings.Join(texts, "; "))
}

// Error means that no candidate can apply a plan. It wraps [interception.ErrUnsupported] and all that is missing.
type Error struct {
	// Owner is the plan's.
	Owner interception.Owner
	// Rejections are the candidates, in the order in which they were tried.
	Rejections []Rejection
}

// Error lists for each candidate what is missing.
func (e *Error) Error() string {
	text := fmt.Sprintf("no dataplane can apply the plan of %s here", e.Owner)
	for _, r := range e.Rejections {
		text += "\n" + r.String()
	}
	return text + "\ninstall or load what is named here, choose a kernel that has it, or allow another dataplane"
}

// Unwrap gives all that is missing.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, r := range e.Rejections {
		errs = append(errs, r.Missing...)
	}
	return errs
}

// validate refuses candidates that could not be told apart.
func validate(candidates []Candidate) error {
	if len(candidates) == 0 {
		return errors.New("no dataplane is a candidate: give one at least")
	}
	names := map[string]bool{}
	for i, c := range candidates {
		if c.Name == "" || c.Dataplane == nil || names[c.Name] {
			return fmt.Errorf("candidate %d, %q: give each a dataplane and a name of its own", i, c.Name)
		}
		names[c.Name] = true
	}
	return nil
}
