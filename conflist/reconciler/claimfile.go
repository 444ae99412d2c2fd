// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// maxClaim bounds the size of a claim file, which may contain a single configuration.
const maxClaim = 16 << 20

// ClaimFile keeps a claim in a file of its own, which only its owner can read. Put it where it
// survives a reboot (not in /run), and not into the directory of CNI configurations.
type ClaimFile struct {
	// Path is the file's path; its directory must exist.
	Path string

	calls filesystem.Observer // in tests
}

func (f ClaimFile) directory() filesystem.Directory {
	return filesystem.Directory{Path: filepath.Dir(f.Path), Observer: f.calls}
}

type claimDocument struct {
	Format int   `json:"format"`
	Places Claim `json:"places,omitzero"`
}

const claimFormat = 1

// Load returns the claim, or the zero value without a file. An invalid file is an error.
func (f ClaimFile) Load() (Claim, error) {
	claim, _, err := f.load()
	return claim, err
}

func (f ClaimFile) load() (claim Claim, before []byte, err error) {
	before, err = f.directory().Read(filepath.Base(f.Path), maxClaim)
	if errors.Is(err, fs.ErrNotExist) {
		return Claim{}, nil, nil
	}
	if err != nil {
		return Claim{}, nil, fmt.Errorf("claim: %w", err)
	}
	var document claimDocument
	if err := json.Unmarshal(before, &document); err != nil {
		return Claim{}, nil, fmt.Errorf("claim %s: %w: remove it, and uninstall by hand what it was about", f.Path, err)
	}
	if document.Format != claimFormat {
		return Claim{}, nil, fmt.Errorf("claim %s: format %d, this version knows %d: use the version that wrote it",
			f.Path, document.Format, claimFormat)
	}
	return document.Places, before, nil
}

// Update changes the claim. If another process changes it at the same time, Update reads it again.
// The zero claim has no file.
func (f ClaimFile) Update(change func(*Claim)) error {
	for {
		claim, before, err := f.load()
		if err != nil {
			return err
		}
		change(&claim)
		if claim.IsZero() {
			_, err := f.directory().Remove(filepath.Base(f.Path))
			return err
		}
		after, err := json.MarshalIndent(claimDocument{claimFormat, claim}, "", "  ")
		if err != nil {
			return fmt.Errorf("claim %s: %w", f.Path, err)
		}
		_, err = f.directory().Write(filepath.Base(f.Path), append(after, '\n'), filesystem.Options{Expect: before})
		if !errors.Is(err, filesystem.ErrChanged) {
			return err
		}
	}
}
