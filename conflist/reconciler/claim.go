// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Claim is the record of what was done to a directory. It outlives the process, so that a later one knows what to undo. The zero value says
// that nothing was done.
type Claim struct {
	// Places are where the plugin was put: one, or two while it moves.
	Places []Place `json:"places,omitempty"`
}

// Place is one file that the plugin was put into. Its JSON form is stable.
type Place struct {
	// File is the file's path in the directory, with slashes: a bare name, or a network's directory and a name.
	File string `json:"name"`
	// Mode is how it was put there; empty is [Splice].
	Mode Mode `json:"mode,omitempty"`
	// Entry is the SHA-256, in hexadecimal, of the plugin's entry that was put there. Empty: not known.
	Entry string `json:"entry,omitempty"`
	// Original is the SHA-256, in hexadecimal, of the list that was found: the file without our entry (Splice), the file that was copied (Owned).
	Original string `json:"original,omitempty"`
	// Lifted is the single configuration that File was made from, if it was.
	Lifted *Lifted `json:"lifted,omitempty"`
	// MadeDirectory says that the network's directory was not there before.
	MadeDirectory bool `json:"made_directory,omitempty"`
}

// Lifted is a single configuration that was replaced by a list.
type Lifted struct {
	// Name is the file's name in the directory.
	Name string `json:"name"`
	// Content is what it held, byte for byte; base64 in JSON.
	Content []byte `json:"content"`
}

// Validate refuses a claim whose files would lead out of the directory.
func (c Claim) Validate() error {
	for _, p := range c.Places {
		depth := 0
		if p.Mode == DropIn {
			depth = 1
		}
		names := []string{p.File}
		if p.Lifted != nil {
			names, depth = append(names, p.Lifted.Name), 0
		}
		for _, name := range names {
			if !fs.ValidPath(name) || name == "." || strings.Count(name, "/") != depth || strings.ContainsAny(name, "\\\x00") {
				return fmt.Errorf("the claim names %q, which is not a bare file name: find out who wrote it, and remove it", name)
			}
		}
	}
	return nil
}

// Place gives the record of a file.
func (c Claim) Place(file string) (place Place, ok bool) {
	i := slices.IndexFunc(c.Places, func(p Place) bool { return p.File == file })
	if i < 0 {
		return Place{}, false
	}
	return c.Places[i], true
}

// with is the claim with a file's record added or replaced.
func (c Claim) with(place Place) Claim {
	out := c.without(place.File)
	out.Places = append(out.Places, place)
	return out
}

// without is the claim without a file's record.
func (c Claim) without(file string) Claim {
	return Claim{Places: slices.DeleteFunc(slices.Clone(c.Places), func(p Place) bool { return p.File == file })}
}

// Claims keeps the claim of one directory. Where several processes share it, Update leaves what others have recorded.
type Claims interface {
	// Load returns the claim; the zero value if there is none.
	Load() (Claim, error)
	// Update changes the claim durably, and writes nothing if that changes nothing.
	Update(change func(*Claim)) error
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
