// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// ClaimFile keeps a claim in a file of its own, and shows its calls to an observer.
type ClaimFile struct {
	Path  string
	Calls filesystem.Observer
}

func (f ClaimFile) directory() filesystem.Directory {
	return filesystem.Directory{Path: filepath.Dir(f.Path), Observer: f.Calls}
}

func (f ClaimFile) Load() (claim Claim, err error) {
	data, err := f.directory().Read(filepath.Base(f.Path), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return Claim{}, nil
	}
	if err != nil {
		return Claim{}, err
	}
	return claim, json.Unmarshal(data, &claim)
}

// Update changes the claim. The zero claim has no file.
func (f ClaimFile) Update(change func(*Claim)) error {
	claim, err := f.Load()
	if err != nil {
		return err
	}
	change(&claim)
	if claim.IsZero() {
		_, err := f.directory().Remove(filepath.Base(f.Path))
		return err
	}
	data, err := json.MarshalIndent(claim, "", "  ")
	if err != nil {
		return err
	}
	_, err = f.directory().Write(filepath.Base(f.Path), data, filesystem.Options{})
	return err
}

func (c Claim) Recorded(file string, mode Mode) Claim {
	return c.with(placement{File: file, Mode: mode})
}

func (c Claim) After(p Plan) Claim {
	for _, s := range p.steps {
		switch s.op {
		case opRecord:
			c = c.with(s.place)
		case opForget:
			c = c.without(s.file)
		case opWrite, opRemove, opMakeDirectory, opRemoveDirectory, opNudge:
		}
	}
	return c
}

// EndsInNudge reports whether the runtime is notified after the last configuration was written.
func (p Plan) EndsInNudge() bool {
	after := false
	for _, s := range p.steps {
		after = s.op == opNudge || after && s.op != opWrite
	}
	return after
}

func (r *Reconciler) In(file string) (filesystem.Directory, error) { return r.in(file) }
