// SPDX-License-Identifier: Apache-2.0

// Package victim starts processes that are killed while they work: copies of a test's program,
// which run the same test again up to the point where they would start one themselves.
//
//	if task, is := victim.Task(); is {                  // in the copy
//		if err := victim.Serve(func() error { return work(task) }); err != nil {
//			t.Fatal(err)
//		}
//		return
//	}
//	v, err := victim.Start(ctx, t.Name(), task)         // until the copy is about to work
//	end, err := v.Run(victim.Ending{When: victim.After(instant)})
//
// # Goals
//
// A victim is stopped as kill -9 stops any process, with its children or without. Once it gets the
// command to go on, it works at once: its start is complete. Events are awaited, never replaced by
// a sleep. Its temporary files are removed, as it cannot do that itself.
//
// # Non-goals
//
// Random kills find random defects: the test decides what a process must not leave.
package victim
