// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Claim is the record of what was installed in a directory. It outlives the process, so that a
// later one knows what to undo. Its content belongs to the reconciler; its JSON form, a list, is
// stable. The zero value means that nothing is installed.
type Claim struct {
	places []placement // where the plugin is: one place, or two while it moves
}

// placement is a file with the plugin in it.
type placement struct {
	// File is the file's path in the directory, with slashes: a bare name, a network's directory
	// and a name, or what Link leads to.
	File string `json:"name"`
	// Link is the name of the symbolic link through which a runtime finds File, if any.
	Link string `json:"link,omitempty"`
	// Mode is how the plugin was installed; empty is [Splice].
	Mode Mode `json:"mode,omitempty"`
	// Entry is the SHA-256, in hexadecimal, of the plugin's entry as installed. Empty: not known.
	Entry string `json:"entry,omitempty"`
	// Original is the SHA-256, in hexadecimal, of the list before: the file without our entry
	// (Splice), or the file that was copied (Owned).
	Original string `json:"original,omitempty"`
	// Kept are the types of the plugins that other programs have put into our own list (Owned).
	Kept []string `json:"kept,omitempty"`
	// Lifted is the single configuration that File was made from, if any.
	Lifted *lifted `json:"lifted,omitempty"`
	// MadeDirectory means that the reconciler created the network's directory.
	MadeDirectory bool `json:"made_directory,omitempty"`
}

// lifted is a single configuration that was replaced by a list.
type lifted struct {
	// Name is the file's name in the directory.
	Name string `json:"name"`
	// Content is the file's content, byte for byte; base64 in JSON.
	Content []byte `json:"content"`
}

// Files returns the paths of the files with the plugin, relative to the directory and with slashes.
func (c Claim) Files() []string {
	var files []string
	for _, p := range c.places {
		files = append(files, p.File)
	}
	return files
}

// IsZero reports whether nothing is installed.
func (c Claim) IsZero() bool { return len(c.places) == 0 }

// MarshalJSON writes the claim as a list.
func (c Claim) MarshalJSON() ([]byte, error) {
	if c.IsZero() {
		return []byte("[]"), nil
	}
	return json.Marshal(c.places)
}

// UnmarshalJSON reads the output of MarshalJSON. It refuses a claim whose files would lead out of
// the directory.
func (c *Claim) UnmarshalJSON(data []byte) error {
	var read Claim
	if err := json.Unmarshal(data, &read.places); err != nil {
		return err
	}
	if err := read.validate(); err != nil {
		return err
	}
	*c = read
	return nil
}

func (c Claim) validate() error {
	for _, p := range c.places {
		depths := map[string]int{p.File: 0}
		switch {
		case p.Link != "":
			depths = map[string]int{p.Link: 0, p.File: strings.Count(p.File, "/")}
		case p.Mode == DropIn:
			depths[p.File] = 1
		}
		if p.Lifted != nil {
			depths = map[string]int{p.File: 0, p.Lifted.Name: 0}
		}
		for name, depth := range depths {
			if !fs.ValidPath(name) || name == "." || strings.Count(name, "/") != depth || strings.ContainsAny(name, "\\\x00") {
				return fmt.Errorf("the claim names %q, which is not a bare file name: find out which program wrote it, and remove it", name)
			}
		}
	}
	return nil
}

func (c Claim) place(file string) (p placement, ok bool) {
	i := slices.IndexFunc(c.places, func(p placement) bool { return p.File == file })
	if i < 0 {
		return placement{}, false
	}
	return c.places[i], true
}

func (c Claim) with(p placement) Claim {
	out := c.without(p.File)
	out.places = append(out.places, p)
	return out
}

func (c Claim) without(file string) Claim {
	return Claim{slices.DeleteFunc(slices.Clone(c.places), func(p placement) bool { return p.File == file })}
}

// Claims keeps one directory's claim, in a place that survives a reboot (not /run) and is not in
// the directory itself. If processes share it, Update preserves all their records.
type Claims interface {
	// Load returns the claim, or the zero value if none was saved.
	Load() (Claim, error)
	// Update changes the claim durably. It writes nothing if the claim stays the same.
	Update(change func(*Claim)) error
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
