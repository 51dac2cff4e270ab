"""Wrong implementations that students' tests must find, where they are more than an option of the right one."""
